"""The grammar ships as package data of contractor.grammar."""
