"""Which ID set? Models trained on photographs, on art paintings and on mixes of both (shi2023)."""
