"""Decides what metrics there are: names, labels, buckets, and how many values of a label are told apart."""
