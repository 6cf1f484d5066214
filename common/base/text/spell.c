/* Implement spell.h by dynamic programming. */
#include "common/base/text/spell.h"

#include <string.h>

enum { WORD_MAX = 63 };

static unsigned min_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned gp_spell_distance(const char *a, const char *b)
{
    unsigned row[3][WORD_MAX + 1]; /* edit matrix rows i-2, i-1 and i, used cyclically */
    size_t m = strnlen(a, WORD_MAX), n = strnlen(b, WORD_MAX);

    for (size_t j = 0; j <= n; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= m; i++) {
        unsigned *now = row[i % 3], *above = row[(i + 2) % 3], *two_above = row[(i + 1) % 3];

        now[0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            unsigned replace = above[j - 1] + (a[i - 1] != b[j - 1]);

            now[j] = min_of(replace, min_of(above[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = min_of(now[j], two_above[j - 2] + 1);
        }
    }
    return row[m % 3][n];
}

void gp_spell_offer(const char *word, const char *candidate, const char **best, unsigned *distance)
{
    unsigned far = gp_spell_distance(word, candidate);

    if (far > 1 + strlen(word) / 3 || (*best != NULL && far >= *distance))
        return;
    *best = candidate;
    *distance = far;
}
