"""A small shop whose chores are tasks of Tickrail."""
