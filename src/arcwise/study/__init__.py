"""What finished runs have to say, ready to be shown: tables, the subject of a report, a view's points; no torch."""
