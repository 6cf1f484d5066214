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

/* A glyph: one stroke through these points, in a unit square with y pointing down. */
typedef struct digit_glyph {
    int count;
    point at[POINTS_MAX];
} digit_glyph;

static const digit_glyph glyphs[10] = {
    { 13,
      { { .50f, .06f },
        { .66f, .11f },
        { .76f, .27f },
        { .79f, .50f },
        { .76f, .73f },
        { .66f, .89f },
        { .50f, .94f },
        { .34f, .89f },
        { .24f, .73f },
        { .21f, .50f },
        { .24f, .27f },
        { .34f, .11f },
        { .50f, .06f } } },
    { 3, { { .33f, .27f }, { .54f, .07f }, { .54f, .93f } } },
    { 9,
      { { .22f, .28f },
        { .30f, .13f },
        { .50f, .07f },
        { .70f, .14f },
        { .77f, .30f },
        { .68f, .48f },
        { .45f, .70f },
        { .20f, .92f },
        { .80f, .92f } } },
    { 11,
      { { .24f, .17f },
        { .45f, .07f },
        { .68f, .14f },
        { .73f, .30f },
        { .62f, .44f },
        { .42f, .48f },
        { .68f, .55f },
        { .77f, .72f },
        { .66f, .88f },
        { .43f, .94f },
        { .21f, .83f } } },
    { 4, { { .62f, .93f }, { .62f, .07f }, { .18f, .66f }, { .84f, .66f } } },
    { 9,
      { { .74f, .08f },
        { .32f, .08f },
        { .27f, .46f },
        { .50f, .40f },
        { .70f, .48f },
        { .77f, .67f },
        { .68f, .86f },
        { .45f, .93f },
        { .22f, .84f } } },
    { 12,
      { { .68f, .08f },
        { .45f, .20f },
        { .29f, .42f },
        { .23f, .68f },
        { .33f, .87f },
        { .52f, .93f },
        { .71f, .84f },
        { .76f, .68f },
        { .68f, .53f },
        { .50f, .48f },
        { .33f, .55f },
        { .24f, .68f } } },
    { 4, { { .20f, .09f }, { .80f, .09f }, { .58f, .45f }, { .42f, .92f } } },
    { 17,
      { { .50f, .48f },
        { .32f, .40f },
        { .27f, .26f },
        { .35f, .12f },
        { .50f, .07f },
        { .65f, .12f },
        { .73f, .26f },
        { .68f, .40f },
        { .50f, .48f },
        { .30f, .58f },
        { .22f, .73f },
        { .31f, .88f },
        { .50f, .94f },
        { .69f, .88f },
        { .78f, .73f },
        { .70f, .58f },
        { .50f, .48f } } },
    { 12,
      { { .32f, .92f },
        { .55f, .80f },
        { .71f, .58f },
        { .77f, .32f },
        { .67f, .13f },
        { .48f, .07f },
        { .29f, .16f },
        { .24f, .32f },
        { .32f, .47f },
        { .50f, .52f },
        { .67f, .45f },
        { .76f, .32f } } },
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
        float x = (glyph->at[i].x - 0.5f + draw_between(draws, -0.04f, 0.04f)) * wide;
        float y = (glyph->at[i].y - 0.5f + draw_between(draws, -0.04f, 0.04f)) * high;

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
