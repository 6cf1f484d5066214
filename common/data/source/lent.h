/* lent.h -- arrays that another program of this machine lends: a sealed memory file, mapped by all who read it, so it is in
 * memory once however many workers there are.
 *
 * A source names it as arrays:PID:DESCRIPTOR:TOKEN, the program that holds it, its descriptor there and a random number that is
 * in the file too, so that a later program with the same PID is not taken for it.  The program gives the descriptor to those who
 * ask for it (gp_lent_serve()); from one that does not it is taken through /proc.  Everything in the file is taken for
 * hostile; nothing can change any more once it was looked at, by its seals. */
#ifndef GP_LENT_H
#define GP_LENT_H

#include "common/data/store/store.h"

enum { GP_LENT_SOURCE_BYTES = 80 };

/* gp_lent_make -- a memory file of arrays, and what it is called as long as this process has it open.
 *   info     count, shape, dtype, targets[0] (one), class_count and class_names are read
 *   targets  NULL: no sample has a class
 *   fd       the caller's: closed, the memory goes when the last reader has closed its store
 * GP_EINVAL, GP_ELIMIT: info.  GP_ENOMEM: the machine has not so much. */
gp_status gp_lent_make(int *fd, char source[GP_LENT_SOURCE_BYTES], const gp_store_info *info,
                       const void *samples, const void *targets, gp_error *err);

/* gp_lent_serve -- give the descriptor to each process of this user that asks for it by the source's token (lent_serve.c), on a
 * thread of its own, until gp_lent_serve_end().  fd stays the caller's, to be closed after it.
 * GP_ELIMIT: no descriptor or thread is left. */
typedef struct gp_lender gp_lender;
gp_status gp_lent_serve(gp_lender **out, int fd, const char *source, gp_error *err);
void gp_lent_serve_end(gp_lender *lender); /* accepts NULL */

/* gp_lent_ask -- a descriptor from whoever serves that; -1: nobody does. */
int gp_lent_ask(unsigned pid, uint64_t token);

#endif
