"""HTTP surfaces, thin: translate, call a service, translate back."""
