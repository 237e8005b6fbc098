"""The type checker that runs over the package under pytest: beartype, an int passing for a float."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
