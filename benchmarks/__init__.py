"""Programs that measure edgec; `README.md` says which figure each of them makes."""
