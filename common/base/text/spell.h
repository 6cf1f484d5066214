/* spell.h -- "did you mean": the nearest word to one that is not known. */
#ifndef GP_SPELL_H
#define GP_SPELL_H

#include <stddef.h>

/* The number of insertions, deletions, replacements and swaps of neighbours that turn a into b
 * (Damerau 1964, restricted).  Words are compared by their first 63 bytes. */
unsigned gp_spell_distance(const char *a, const char *b);

/* Keep the nearer candidate: start with *best = NULL and call once per known word.  Only words within
 * a third of the length count as near. */
void gp_spell_offer(const char *word, const char *candidate, const char **best, unsigned *distance);

#endif
