/* Bugs that the power failure test must find. journal_bugs.patch plants them in a copy of the
 * journal. */
#ifndef GP_JOURNAL_BUGS_H
#define GP_JOURNAL_BUGS_H

enum {
    BUG_NONE,
    BUG_NO_SYNC,      /* synchronous=OFF */
    BUG_RARE_SYNC,    /* synchronous=NORMAL */
    BUG_NO_LOG,       /* pages are overwritten in place; the old content is only in memory */
    BUG_EARLY_REPORT, /* rows are reported before they are durable */
    BUG_COUNT,
};

extern int journal_bug; /* planted bug */

#define PLANTED(id) (journal_bug == BUG_##id)

#endif
