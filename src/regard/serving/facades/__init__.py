"""The interfaces under which models are served: requests and answers in the shapes that clients already know."""
