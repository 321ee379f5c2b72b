"""Facts: values about nodes and pods that come from elsewhere, with their age."""
