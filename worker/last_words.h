/* last_words.h -- why a process ends itself, for the scheduler, which has only its exit code otherwise: a file beside its socket, that
 * whoever reaps the process reads and removes. */
#ifndef GP_LAST_WORDS_H
#define GP_LAST_WORDS_H

/* Where it would be; not copied twice: one process, one place. */
void gp_last_words_place(const char *path);

/* Nothing happens where there is no place; cannot fail in a way that anybody could hear of. */
void gp_last_words_leave(const char *text);

#endif
