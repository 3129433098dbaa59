"""Tests of `edgec eval`: data sets, measures, intervals, and the verb as a whole."""
