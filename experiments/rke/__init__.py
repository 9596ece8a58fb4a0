"""Studies of the RKE paper: mixtures and generative adversarial networks."""
