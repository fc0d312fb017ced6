"""What follows from what a task predicts: losses, scores, and what is kept of them."""
