"""The viewer: traces of a model at work on a sentence, and the local server that shows them in a browser."""
