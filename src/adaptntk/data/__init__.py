"""Files to structures with stable identities: reading, checking, hashing, splitting, generating."""
