/* app_jpeg.h - writes a picture as baseline JPEG (ITU-T T.81): the tables of its annex K for
 * luminance, for colours too, which have half the resolution. */
#ifndef APP_JPEG_H
#define APP_JPEG_H
#include "app_base.h"
#include "ek_frame.h"

/* Table K.1, of quality 85 as the Independent JPEG Group counts: times 0.3, by rows. */
static const uint8_t jpeg_steps[64] = {
    5,  3,  3,  5,  7,  12, 15, 18, 4,  4,  4,  6,  8,  17, 18, 17, 4,  4,  5,  7,  12, 17,
    21, 17, 4,  5,  7,  9,  15, 26, 24, 19, 5,  7,  11, 17, 20, 33, 31, 23, 7,  11, 17, 19,
    24, 31, 34, 28, 15, 19, 23, 26, 31, 36, 36, 30, 22, 28, 29, 29, 34, 30, 31, 30};
/* Figure A.6: the place of each number of a block that is stored. */
static const uint8_t jpeg_order[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};
/* Tables K.3 and K.5: how many codes have each length, and what they stand for. */
static const uint8_t jpeg_dc[] = {0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0,  0,
                                  0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const uint8_t jpeg_ac[] = {
    0,    2,    1,    3,    3,    2,    4,    3,    5,    5,    4,    4,    0,    0,    1,
    0x7d, 0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51,
    0x61, 0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15,
    0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a,
    0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44,
    0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63,
    0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a,
    0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98,
    0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5,
    0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2,
    0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7,
    0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa};

struct jpeg {
    struct text *to;
    uint32_t bits; /* the last ones that are not written yet */
    int waiting;   /* how many */
    uint16_t dc_codes[256], ac_codes[256];
    uint8_t dc_lengths[256], ac_lengths[256];
    float cosines[64]; /* [frequency][place], scaled */
};

static void jpeg_codes(const uint8_t *table, uint16_t *codes, uint8_t *lengths) {
    const uint8_t *value = table + 16;
    uint16_t code = 0;
    for (int length = 1; length <= 16; length++, code = (uint16_t)(code << 1))
        for (int i = 0; i < table[length - 1]; i++, code++)
            codes[*value] = code, lengths[*value++] = (uint8_t)length;
}

static void jpeg_put(struct jpeg *j, uint32_t bits, int count) {
    j->bits = j->bits << count | bits;
    for (j->waiting += count; j->waiting >= 8; j->waiting -= 8) {
        const uint8_t byte = (uint8_t)(j->bits >> (j->waiting - 8));
        text_bytes(j->to, &byte, 1);
        if (byte == 255) text_bytes(j->to, "", 1); /* else it would be a marker */
    }
}

/* A number as how many bits it has, which a code names, and those bits. */
static void jpeg_number(struct jpeg *j, int zeros, int value, const uint16_t *codes,
                        const uint8_t *lengths) {
    int size = 0;
    for (int rest = abs(value); rest; rest >>= 1) size++;
    const int symbol = zeros << 4 | size;
    jpeg_put(j, codes[symbol], lengths[symbol]);
    if (size) jpeg_put(j, (uint32_t)(value < 0 ? value - 1 : value) & ((1u << size) - 1), size);
}

/* A block of 8 x 8 levels, `stride` apart; *before: the first number of the last such block. */
static void jpeg_block(struct jpeg *j, const float *levels, int stride, int *before) {
    float rows[64];
    int numbers[64], zeros = 0;
    for (int y = 0; y < 8; y++)
        for (int u = 0; u < 8; u++) {
            float sum = 0;
            for (int x = 0; x < 8; x++) sum += levels[y * stride + x] * j->cosines[8 * u + x];
            rows[8 * y + u] = sum;
        }
    for (int v = 0; v < 8; v++)
        for (int u = 0; u < 8; u++) {
            float sum = 0;
            for (int y = 0; y < 8; y++) sum += rows[8 * y + u] * j->cosines[8 * v + y];
            numbers[8 * v + u] = (int)lrintf(sum / (float)jpeg_steps[8 * v + u]);
        }
    jpeg_number(j, 0, numbers[0] - *before, j->dc_codes, j->dc_lengths);
    *before = numbers[0];
    for (int i = 1; i < 64; i++) {
        const int value = EK_CLAMP(numbers[jpeg_order[i]], -1023, 1023);
        if (!value) {
            zeros++;
            continue;
        }
        for (; zeros > 15; zeros -= 16) jpeg_put(j, j->ac_codes[0xf0], j->ac_lengths[0xf0]);
        jpeg_number(j, zeros, value, j->ac_codes, j->ac_lengths);
        zeros = 0;
    }
    if (zeros) jpeg_put(j, j->ac_codes[0], j->ac_lengths[0]);
}

static void jpeg_head(struct text *to, int width, int height) {
    const uint8_t size[] = {0xff,
                            0xc0,
                            0,
                            17,
                            8,
                            (uint8_t)(height >> 8),
                            (uint8_t)height,
                            (uint8_t)(width >> 8),
                            (uint8_t)width,
                            3};
    text_bytes(to, "\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xdb\0\x43\0", 25);
    for (int i = 0; i < 64; i++) text_bytes(to, &jpeg_steps[jpeg_order[i]], 1);
    text_bytes(to, size, sizeof size);
    text_bytes(to, "\1\x22\0\2\x11\0\3\x11\0", 9);
    text_bytes(to, "\xff\xc4\0\x1f\0", 5);
    text_bytes(to, jpeg_dc, sizeof jpeg_dc);
    text_bytes(to, "\xff\xc4\0\xb5\x10", 5);
    text_bytes(to, jpeg_ac, sizeof jpeg_ac);
    text_bytes(to, "\xff\xda\0\x0c\3\1\0\2\0\3\0\0\x3f\0", 14);
}

/* Appends the JPEG of pixels of four bytes each: red, green, blue, and one that is not read. */
static void jpeg_write(struct text *to, const uint8_t *pixels, int width, int height) {
    static struct jpeg j;
    float luma[256], blue[64], red[64];
    int before[3] = {0};
    j.to = to, j.bits = 0, j.waiting = 0;
    jpeg_codes(jpeg_dc, j.dc_codes, j.dc_lengths);
    jpeg_codes(jpeg_ac, j.ac_codes, j.ac_lengths);
    for (int i = 0; i < 64; i++) {
        const float scale = i < 8 ? sqrtf(0.125f) : 0.5f;
        j.cosines[i] = scale * cosf((float)((2 * (i % 8) + 1) * (i / 8)) * 3.14159265358979f / 16);
    }
    jpeg_head(to, width, height);
    for (int top = 0; top < height; top += 16)
        for (int left = 0; left < width; left += 16) {
            memset(blue, 0, sizeof blue), memset(red, 0, sizeof red);
            for (int i = 0; i < 256; i++) {
                /* Beyond the border: its last pixel again. */
                const int x = EK_MIN(left + i % 16, width - 1),
                          y = EK_MIN(top + i / 16, height - 1);
                const uint8_t *p = pixels + 4 * ((size_t)y * (size_t)width + (size_t)x);
                const float level = 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2];
                const int shared = i / 32 * 8 + i % 16 / 2;
                luma[i] = level - 128;
                blue[shared] += (p[2] - level) * (0.25f / 1.772f);
                red[shared] += (p[0] - level) * (0.25f / 1.402f);
            }
            for (int i = 0; i < 4; i++)
                jpeg_block(&j, luma + i / 2 * 128 + i % 2 * 8, 16, &before[0]);
            jpeg_block(&j, blue, 8, &before[1]);
            jpeg_block(&j, red, 8, &before[2]);
        }
    jpeg_put(&j, 127, 7); /* fills the last byte */
    text_bytes(to, "\xff\xd9", 2);
}

#endif
