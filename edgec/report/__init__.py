"""What people read: pages, texts, tables; rendering alone."""
