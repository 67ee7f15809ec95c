"""contractor: masked attention and state space layers, written as contractions, planned and printed as kernels."""
