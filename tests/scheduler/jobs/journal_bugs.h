/* journal_bugs.h -- bugs that a replay of what the journal wrote must find.  journal_bugs.patch puts them into a copy of
 * the journal. */
#ifndef GP_JOURNAL_BUGS_H
#define GP_JOURNAL_BUGS_H

enum {
    BUG_NONE,
    BUG_NO_SYNC,      /* synchronous=OFF */
    BUG_RARE_SYNC,    /* synchronous=NORMAL */
    BUG_NO_LOG,       /* pages are overwritten in place; their old content is only in memory */
    BUG_EARLY_REPORT, /* rows are reported as durable before they are */
    BUG_COUNT,
};

extern int journal_bug; /* the planted one */

#define PLANTED(id) (journal_bug == BUG_##id)

#endif
