/* What tiles do to their sums before they store them, whatever the elements are. */
#ifndef EK_EPILOGUE_H
#define EK_EPILOGUE_H

#if defined(__clang__) /* before a loop that is not worth copies of its body */
#define EK_ROLLED _Pragma("clang loop unroll(disable)") _Pragma("clang loop vectorize(disable)")
#else
#define EK_ROLLED /* gcc makes none */
#endif

/* What is done to a sum, in this order. */
enum {
    EK_DO_LOW = 1,
    EK_DO_HIGH = 2,
    EK_DO_ADD = 4,
    EK_DO_LOW_SUM = 8,
    EK_DO_HIGH_SUM = 16,
    EK_DO_PRELU = 32,
    EK_DO_HARD_SWISH = 64
};

/* All that is done: whatever todo says; nothing; EK_DO_LOW, or EK_DO_LOW and EK_DO_HIGH, with
 * bounds of 0 and more. */
enum { EK_END_ANY, EK_END_NONE, EK_END_LOW, EK_END_BOTH };

#endif
