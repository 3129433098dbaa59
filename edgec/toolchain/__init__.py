"""Programs that edgec calls: C compilers and edgetpu_compiler."""
