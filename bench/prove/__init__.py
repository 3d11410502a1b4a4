"""Proves at full size that what people ask of a store with millions of jobs is answered while they wait for it."""
