"""Reports: what runs have to say, written out as pages for a person to read."""

from arcwise.report.make import report as report
