/* train_run.h -- a training and its one run.  Private to the files client/train/train*.c. */
#ifndef GP_TRAIN_RUN_H
#define GP_TRAIN_RUN_H

#include "client/pool/pool.h"
#include "client/train/reform.h"
#include "common/base/system/timeout.h"
#include "common/data/store/augment.h"
#include "common/model/network.h"
#include "common/model/train_options.h"

struct gp_training {
    gp_network network; /* weights: the trained blob */
    gp_graph *graph;
    gp_training_summary summary;
    struct gp_run *run; /* NULL: it has been */
};

enum { GP_RUN_SKIPPED_MAX = 64, GP_RUN_TURN_MS = 50 };

/* A step or a validation that the request's events have not been called with yet. */
typedef struct gp_pending_event {
    bool is_validation;
    union {
        gp_train_record step;
        gp_train_validation validation;
    };
} gp_pending_event;

/* Pending events in the order in which they arrived. */
typedef struct gp_pending_list {
    gp_pending_event *events;
    size_t count, capacity;
} gp_pending_list;

/* One that will join. */
typedef struct gp_joiner {
    uint32_t index, incarnation; /* index 0: none */
    bool told, prepared;
    uint64_t asked; /* correlation of its train_begin */
} gp_joiner;

typedef struct gp_run {
    gp_pool *pool;
    const gp_train_request *request;
    gp_training *training; /* that owns it */
    gp_train_options options;
    gp_augment augment;
    gp_train_begin begin;
    int weights_fd; /* sealed weights that the training begins with; -1: none */
    char *netspec, *options_text;
    char *
        classes; /* JSON array: the network's class names, if the data have them in another order; else NULL */
    size_t netspec_bytes, options_bytes, classes_bytes;
    const char *const *class_names; /* that gp_run_open_data() numbers labels by; NULL: their own */
    uint32_t class_count;
    reform reform; /* ranks of the group, which of them are ready and have ended, and what comes next */
    bool has_result;
    gp_train_facts facts;
    int stop_told;                         /* highest stop that the workers know of */
    gp_error failure;                      /* first by time; GP_OK = none */
    int64_t failed_ms;                     /* when that, or the first effect of it, was seen */
    gp_timeout ending;                     /* of the wait for the cause and for other workers to end */
    gp_error effect;                       /* told when no cause comes */
    int64_t begun_ms;                      /* train_begin was sent */
    char skipped[GP_RUN_SKIPPED_MAX][128]; /* images that some worker could not read, each once */
    uint32_t skipped_count;
    int64_t loading_noted_ms; /* when the preparation was last reported; 0: not yet */
    bool told_begin;
    /* When the group is left for another one (reform.h, train_again.c). */
    bool died;                 /* because a member died */
    char cause[GP_TEXT_CAUSE]; /* why, in words */
    int64_t left_ms;           /* when its last step ended, as far as we know */
    int64_t stepped_ms;        /* when the last news of a step came */
    bool quiet;                /* nothing was there to be read when we last looked */
    gp_timeout alarm;          /* if alarmed: when REFORM_LATE is due */
    bool alarmed;
    uint64_t reunions; /* pool->reunions, when we last looked */
    bool lost_told;    /* reform knows of pool->lost */
    bool lost_alone;   /* the only one that had the state died */
    bool lost_worded;  /* failure is in the words of a death, with the last step: more of those may come */
    bool begin_due;    /* what REFORM_DO_BEGIN asked for: not while a message is being read */
    /* When the state of all ranks is lost, and the training restarts in another lease (train_anew.c). */
    bool lost;              /* the training failed in a way that a restart can repair */
    int64_t losses;         /* successive losses without a new step between them */
    uint64_t lost_at;       /* the last step that was reported before the last loss */
    bool anew;              /* the training was restarted, and no event has reported it yet */
    uint64_t checked;       /* step of the last reported validation */
    uint64_t group_checked; /* step of the last validation that the present group sent; 0: none */
    bool final_checked;     /* the validation of the weights with population statistics was reported */
    uint64_t
        excluded; /* targets of the validation data without a class or value, as last reported by rank 0 */
    /* Steps that rank 1 reported after the last step of rank 0: they replace those that rank 0 could not send before it
     * failed, because the sums of a step are the same on all ranks. */
    gp_pending_list spare;
    gp_pending_list
        early; /* steps and validations of rank 0 that arrived before the train_ready of all ranks */
    /* Those who will join, with links behind those of the ranks (train_join.c). */
    gp_joiner joiners[GP_MEMBERS_MAX];
} gp_run;

/* ---- train.c ---- */

/* The first failure by time is the one that is told. */
void gp_run_fail(gp_run *run, const gp_error *failure);
/* What a worker says. */
void gp_run_take(gp_run *run, uint32_t rank, const gp_incoming *in);
/* train_begin to all ranks of the present grant, which run->reform knows. */
gp_status gp_run_begin(gp_run *run, gp_error *err);
/* Report the begin event, unless it was reported before. */
void gp_run_report_begin(gp_run *run);
/* Report all pending events as those of rank 0, after the begin event; the list is empty afterwards. */
void gp_run_report_pending(gp_run *run, gp_pending_list *list);

/* ---- train_again.c ---- */

/* Append a copy of an event. The event is lost if there is no memory or the list has 65536 events. */
void gp_pending_list_add(gp_pending_list *list, const gp_pending_event *event);
/* Remove the steps up to and including `step`; validations stay. */
void gp_pending_list_drop(gp_pending_list *list, uint64_t step);
/* Something happened: decide, and do what has to be done. */
void gp_run_reform(gp_run *run, const reform_event *event);
/* The failure by a death in words that know what the survivors have said since. */
void gp_run_say_lost(gp_run *run);
/* What the scheduler and the time say. */
void gp_run_watch(gp_run *run);
/* Attach to the next generation and begin in it, if that is due. */
gp_status gp_run_form_again(gp_run *run, gp_error *err);
/* Whether nobody works, or only those who have to end: the next generation is awaited. */
bool gp_run_between(const gp_run *run);

/* Report that all ranks of another group are ready: the begin event, if it was not reported before, and the regroup event.
 *   before  number of workers of the last group that took steps, or else of the first group
 *   step    last step that the group has the state of */
void gp_run_go_on(gp_run *run, uint32_t before, uint64_t step);

/* ---- train_anew.c ---- */

/* An error of the pool, while the training was at work: whether another lease would help. */
bool gp_run_lost_lease(const gp_run *run, gp_status status);
/* Whether it was lost, and may begin anew once more. */
bool gp_run_may_begin_anew(gp_run *run);
/* Everything as before the first lease but what was told; it begins after the newest checkpoint of its own, if there is one. */
gp_status gp_run_begin_anew(gp_run *run, const gp_error *why, gp_error *err);

/* ---- train_checkpoints.c ---- */

/* Resolve resume and run-id: find the checkpoint to continue from, or make a new run id.  The graph is known.
 * GP_EBUSY: checkpoint-path has checkpoints that the training would mix with its own.  GP_EINVAL: the checkpoint does not
 * fit the network or the options, or which run to continue is ambiguous.  GP_ENOENT, GP_ECORRUPT: no usable checkpoint. */
gp_status gp_run_choose_checkpoint(gp_run *run, gp_error *err);
/* Return the step of the newest checkpoint of this run in checkpoint-path, up to step `last`; 0: none. */
uint64_t gp_run_newest_checkpoint(const gp_run *run, uint64_t last);

/* ---- train_join.c ---- */

/* Who would join is told anew: links to others are closed. */
void gp_run_join_change(gp_run *run, const gp_lease_change *change);
/* Nobody would: the group is left, or the scheduler that named them is gone. */
void gp_run_join_forget(gp_run *run);
/* REFORM_DO_PREPARE. */
void gp_run_join_prepare(gp_run *run, uint32_t workers);
/* What one of them says; rank: of its link. */
void gp_run_join_take(gp_run *run, uint32_t rank, const gp_incoming *in);
/* Bit index - 1: those who have prepared. */
uint64_t gp_run_join_prepared(const gp_run *run);
uint32_t gp_run_join_count(const gp_run *run);

/* ---- train_prepare.c ---- */

/* Options, network and data of the request; what can be wrong is told here. */
gp_status gp_run_prepare(gp_run *run, gp_error *err);
/* A part of the data as the training reads it. */
gp_status gp_run_open_data(gp_run *run, gp_store **store, const char *source, gp_data_role role,
                           gp_error *err);
/* What --class-weights says, into each loss of the network that has class weights. */
gp_status gp_run_weigh_classes(gp_run *run, gp_error *err);
/* options_text; the first time with what depends on the number of workers worked out: `world` is known. */
gp_status gp_run_write_options(gp_run *run, gp_error *err);

#endif
