"""What rankings of heads are worth: scores, repair, and the loss with heads switched off."""
