/* The steps of a chain, and the places that they read and write, whatever the elements are. */
#ifndef EK_CHAIN_H
#define EK_CHAIN_H

enum {
    EK_CHAIN_ADD,
    EK_CHAIN_SUB,
    EK_CHAIN_MUL,
    EK_CHAIN_SCALE,
    EK_CHAIN_PRELU,
    EK_CHAIN_CLAMP,
    EK_CHAIN_FUNCTION
};

/* Where steps read and write: four inputs, two outputs, three blocks of the stack. */
enum {
    EK_CHAIN_Y = 4,
    EK_CHAIN_SLOT = 6,
    EK_CHAIN_PLACES = 9,
    EK_CHAIN_STEPS = 8,
    EK_CHAIN_BLOCK = 1024
};

#endif
