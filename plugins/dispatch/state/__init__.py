"""What policies know of the other processes on the same port."""
