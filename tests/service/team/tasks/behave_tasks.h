/* behave_tasks.h: arguments and results of the tasks in behave_tasks.so, for the tests that call
 * them. */
#ifndef GP_TEST_BEHAVE_TASKS_H
#define GP_TEST_BEHAVE_TASKS_H

#include <stdint.h>

enum { BEHAVE_LARGE = 40000 }; /* item size of queue_large, bytes */

typedef struct behave_place { /* result of where, nap, stubborn */
    int64_t pid;
    uint32_t worker, index, size, attempt;
} behave_place;

typedef struct behave_tally { /* argument of tally, recorded, alone */
    int64_t number, ms;
    char path[112];
} behave_tally;

typedef struct behave_recorded { /* result of recorded */
    int64_t number, pid;
} behave_recorded;

typedef struct behave_one { /* argument of one_of_many */
    int64_t rank;           /* from 1 */
    char does[32];          /* "fail", "leave", or a name for `die` */
    char others[32];        /* "barrier", "receive", "spin" */
} behave_one;

typedef struct behave_iteration { /* argument of loop tasks */
    int64_t iteration;            /* the special iteration */
    char does[32];                /* "fail", or a name for `die` */
} behave_iteration;

typedef struct behave_trouble { /* argument of troubled */
    int64_t fails;              /* iterations divisible by it fail; 0: none */
    int64_t until;              /* and only before the attempt with that number; 0: always */
    int64_t dies, spins, deaf;  /* iterations that kill the worker, wait for a cancel, ignore it */
    char path[112];             /* file that gets one behave_start per start; "": none */
} behave_trouble;

typedef struct behave_start {
    int64_t iteration, attempt;
} behave_start;

#endif
