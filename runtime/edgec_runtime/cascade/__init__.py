"""Networks one after another: a detector's objects, cropped from the frame, for others."""
