"""Returns pages: what the project has to say, written out as files for a person to read."""
