"""Returns comparisons: heads side by side over seeds, one Run each, with spreads and paired differences."""
