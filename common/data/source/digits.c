/* Draw random digits.
 *
 * Every machine must draw the same bytes. The file is therefore compiled without fused
 * multiply-adds, and uses only + - * / and sqrt, for which IEEE 754 defines the exact result. */
#include "common/data/source/digits.h"

#include <math.h>

#include "common/base/rng.h"

enum { POINTS_MAX = 20, SIDE = GP_DIGITS_SIDE };

typedef struct point {
    float x, y;
} point;

/* A glyph: one stroke through these points, x and y in hundredths of a unit square, with y pointing
 * down. */
typedef struct digit_glyph {
    int count;
    uint8_t at[2 * POINTS_MAX];
} digit_glyph;

static const digit_glyph glyphs[10] = {
    { 13, { 50, 6,  66, 11, 76, 27, 79, 50, 76, 73, 66, 89, 50,
            94, 34, 89, 24, 73, 21, 50, 24, 27, 34, 11, 50, 6 } },
    { 3, { 33, 27, 54, 7, 54, 93 } },
    { 9, { 22, 28, 30, 13, 50, 7, 70, 14, 77, 30, 68, 48, 45, 70, 20, 92, 80, 92 } },
    { 11, { 24, 17, 45, 7, 68, 14, 73, 30, 62, 44, 42, 48, 68, 55, 77, 72, 66, 88, 43, 94, 21, 83 } },
    { 4, { 62, 93, 62, 7, 18, 66, 84, 66 } },
    { 9, { 74, 8, 32, 8, 27, 46, 50, 40, 70, 48, 77, 67, 68, 86, 45, 93, 22, 84 } },
    { 12, { 68, 8, 45, 20, 29, 42, 23, 68, 33, 87, 52, 93, 71, 84, 76, 68, 68, 53, 50, 48, 33, 55, 24, 68 } },
    { 4, { 20, 9, 80, 9, 58, 45, 42, 92 } },
    { 17, { 50, 48, 32, 40, 27, 26, 35, 12, 50, 7,  65, 12, 73, 26, 68, 40, 50,
            48, 30, 58, 22, 73, 31, 88, 50, 94, 69, 88, 78, 73, 70, 58, 50, 48 } },
    { 12, { 32, 92, 55, 80, 71, 58, 77, 32, 67, 13, 48, 7, 29, 16, 24, 32, 32, 47, 50, 52, 67, 45, 76, 32 } },
};

/* Random words for one sample, in order of use. */
typedef struct draw_stream {
    uint64_t seed;
    uint32_t index, block, used;
    uint32_t word[4];
} draw_stream;

static uint32_t draw_word(draw_stream *draws)
{
    if (draws->used % 4 == 0)
        gp_rng_draw(draws->word, draws->seed, gp_rng_stream(GP_RNG_DIGITS, 0), 0, draws->index,
                    draws->block++);
    return draws->word[draws->used++ % 4];
}

static float draw_between(draw_stream *draws, float low, float high)
{
    return low + (high - low) * gp_rng_uniform(draw_word(draws));
}

/* Place the glyph's points in pixels: shift each point randomly, then apply a random affine map
 * about the middle. */
static void points_place(point *placed, const digit_glyph *glyph, draw_stream *draws)
{
    /* tangent of half the angle: up to 14 degrees */
    float half = draw_between(draws, -0.12f, 0.12f);
    float cosine = (1 - half * half) / (1 + half * half), sine = 2 * half / (1 + half * half);
    float shear = draw_between(draws, -0.2f, 0.2f);
    float wide = draw_between(draws, 15.0f, 21.0f), high = draw_between(draws, 18.0f, 22.0f);
    float middle_x = SIDE / 2.0f + draw_between(draws, -2.0f, 2.0f);
    float middle_y = SIDE / 2.0f + draw_between(draws, -2.0f, 2.0f);

    for (int i = 0; i < glyph->count; i++) {
        float x = ((float)glyph->at[2 * i] / 100.0f - 0.5f + draw_between(draws, -0.04f, 0.04f)) * wide;
        float y = ((float)glyph->at[2 * i + 1] / 100.0f - 0.5f + draw_between(draws, -0.04f, 0.04f)) * high;

        x -= shear * y;
        placed[i].x = middle_x + cosine * x - sine * y;
        placed[i].y = middle_y + sine * x + cosine * y;
    }
}

static int pixel_clamp(float coordinate)
{
    return coordinate < 0 ? 0 : coordinate > SIDE - 1 ? SIDE - 1 : (int)coordinate;
}

/* Lower the squared distance of each pixel within `reach` of the segment from a to b. */
static void segment_draw(float distance[SIDE][SIDE], point a, point b, float reach)
{
    int left = pixel_clamp(fminf(a.x, b.x) - reach), right = pixel_clamp(fmaxf(a.x, b.x) + reach);
    int top = pixel_clamp(fminf(a.y, b.y) - reach), bottom = pixel_clamp(fmaxf(a.y, b.y) + reach);
    float dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
    float inverse = square > 0 ? 1 / square : 0;

    for (int row = top; row <= bottom; row++)
        for (int column = left; column <= right; column++) {
            float x = (float)column + 0.5f - a.x, y = (float)row + 0.5f - a.y;
            float along = (x * dx + y * dy) * inverse;
            float off_x, off_y, squared;

            along = along < 0 ? 0 : along > 1 ? 1 : along;
            off_x = x - along * dx;
            off_y = y - along * dy;
            squared = off_x * off_x + off_y * off_y;
            if (squared < distance[row][column])
                distance[row][column] = squared;
        }
}

int gp_digits_draw(uint8_t pixel[GP_DIGITS_PIXELS], uint64_t seed, uint32_t index)
{
    draw_stream draws = { .seed = seed, .index = index };
    const digit_glyph *glyph = &glyphs[index % 10];
    float radius, soft, ink, noise, distance[SIDE][SIDE];
    point placed[POINTS_MAX];

    points_place(placed, glyph, &draws);
    radius = draw_between(&draws, 0.8f, 1.7f); /* pen radius */
    soft = draw_between(&draws, 0.4f, 1.1f);   /* half the width of the blurred rim */
    ink = draw_between(&draws, 180.0f, 255.0f);
    noise = draw_between(&draws, 0.0f, 60.0f);
    for (int i = 0; i < GP_DIGITS_PIXELS; i++)
        distance[i / SIDE][i % SIDE] = 1e6f;
    for (int i = 0; i + 1 < glyph->count; i++)
        segment_draw(distance, placed[i], placed[i + 1], radius + soft);
    draws.used = (draws.used + 3) & ~3u; /* skip to the next block of four words */
    for (int i = 0; i < GP_DIGITS_PIXELS; i += 4) {
        uint32_t word = draw_word(&draws);

        for (int j = i; j < i + 4; j++, word >>= 8) {
            float rim = (radius + soft - sqrtf(distance[j / SIDE][j % SIDE])) / (2 * soft);
            float level = (rim < 0 ? 0 : rim > 1 ? 1 : rim) * ink;

            level += ((float)(word & 255) / 255.0f - 0.5f) * noise;
            pixel[j] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
        }
    }
    return (int)(index % 10);
}
