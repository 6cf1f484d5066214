#include "common/base/sha256.h"

#include <string.h>

enum { BLOCK = 64 };

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void block_add(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t first = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
                         ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
        uint32_t second = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
                          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void gp_sha256_init(gp_sha256_sum *sum)
{
    *sum = (gp_sha256_sum){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                       0x1f83d9ab, 0x5be0cd19 } };
}

void gp_sha256_add(gp_sha256_sum *sum, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    size_t held = sum->bytes % BLOCK;

    if (bytes == 0)
        return;
    sum->bytes += bytes;
    if (held != 0 || bytes < BLOCK) {
        size_t take = BLOCK - held < bytes ? BLOCK - held : bytes;

        memcpy(sum->rest + held, from, take);
        from += take;
        bytes -= take;
        if (held + take < BLOCK)
            return;
        block_add(sum->state, sum->rest);
    }
    for (; bytes >= BLOCK; bytes -= BLOCK, from += BLOCK)
        block_add(sum->state, from);
    memcpy(sum->rest, from, bytes);
}

static void sum_finish(gp_sha256_sum *sum, uint8_t digest[GP_SHA256_BYTES])
{
    uint8_t last[2 * BLOCK] = { 0 };
    size_t rest = sum->bytes % BLOCK, padded = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;

    memcpy(last, sum->rest, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[padded - 1 - (size_t)i] = (uint8_t)(sum->bytes * 8 >> 8 * i);
    for (size_t at = 0; at < padded; at += BLOCK)
        block_add(sum->state, last + at);
    for (int i = 0; i < GP_SHA256_BYTES; i++)
        digest[i] = (uint8_t)(sum->state[i / 4] >> (24 - 8 * (i % 4)));
}

void gp_sha256_finish(gp_sha256_sum *sum, char text[GP_SHA256_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[GP_SHA256_BYTES];

    sum_finish(sum, digest);
    for (int i = 0; i < GP_SHA256_BYTES; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[GP_SHA256_TEXT_BYTES - 1] = '\0';
}

void gp_sha256(uint8_t digest[GP_SHA256_BYTES], const void *data, size_t bytes)
{
    gp_sha256_sum sum;

    gp_sha256_init(&sum);
    gp_sha256_add(&sum, data, bytes);
    sum_finish(&sum, digest);
}
