/* Runs edgec_crop_0 on the cases of standard input, each with buffers of exactly the size that the
 * runtime gives, so that a sanitizer sees every byte beyond them. */
#include "ek_crop.h"
#include <stdio.h>
#include <stdlib.h>

int edgec_crop_0(const ek_frame_t *frame, const ek_crop_t *crop, void *scratch, void *out);

enum { NUMBERS = 18, OUT = 64 * 64 * 3 * 4 };

int main(void) {
    int64_t n[NUMBERS];
    int cases = 0;
    while (fread(n, sizeof n, 1, stdin) == 1) {
        ek_frame_t frame = {.format = (int)n[0], .width = (int)n[1], .height = (int)n[2]};
        for (int i = 0; i < 2; i++) {
            frame.planes[i] = malloc((size_t)n[3 + i]);
            frame.strides[i] = n[5 + i];
            memset((void *)frame.planes[i], 77, (size_t)n[3 + i]);
        }
        const ek_crop_t crop = {.level = (int)n[7],
                                .left = (int)n[8],
                                .top = (int)n[9],
                                .width = (int)n[10],
                                .height = (int)n[11],
                                .start = {n[12], n[13]},
                                .across = {n[14], n[15]},
                                .down = {n[16], n[17]}};
        int64_t bytes = 0;
        if (fread(&bytes, sizeof bytes, 1, stdin) != 1) return 1;
        void *scratch = malloc((size_t)bytes), *out = malloc(OUT);
        if (edgec_crop_0(&frame, &crop, scratch, out)) return 1;
        free(scratch), free(out);
        for (int i = 0; i < 2; i++) free((void *)frame.planes[i]);
        cases++;
    }
    printf("%d\n", cases);
    return 0;
}
