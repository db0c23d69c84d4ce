"""Documents of other programs, read into ours. The only user of icalendar."""
