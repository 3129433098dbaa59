"""Measures of how near values are to a reference: SQNR, cosine, distance, range."""
