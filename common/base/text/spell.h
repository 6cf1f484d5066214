/* Suggest the nearest known word for a misspelled one ("did you mean ..."). */
#ifndef GP_SPELL_H
#define GP_SPELL_H

#include <stddef.h>

/* Return the edit distance between two words: the number of insertions, deletions, replacements and
 * swaps of neighbors (Damerau 1964, restricted form). Only the first 63 bytes are compared. */
unsigned gp_spell_distance(const char *a, const char *b);

/* Compare a candidate with the best one so far, and keep the nearer. Start with *best = NULL and
 * call this function once per known word.
 *   word       misspelled word
 *   candidate  known word; at most 1 + a third of the word's length away, or ignored
 *   best       nearest word so far; NULL: none
 *   distance   distance of *best */
void gp_spell_offer(const char *word, const char *candidate, const char **best, unsigned *distance);

#endif
