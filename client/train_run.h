/* train_run.h -- a training and its one run.  Private to train.c and train_prepare.c. */
#ifndef GP_TRAIN_RUN_H
#define GP_TRAIN_RUN_H

#include "client/pool.h"
#include "common/data/augment.h"
#include "common/model/network.h"
#include "common/model/train_options.h"

struct gp_training {
    gp_network network; /* weights: the trained blob */
    gp_graph *graph;
    gp_training_summary summary;
    struct gp_run *run; /* NULL: it has been */
};

enum { GP_RUN_SKIPPED_MAX = 64 };

/* News of steps that are not told yet. */
typedef struct gp_step_list {
    gp_train_record *records;
    size_t count, capacity;
} gp_step_list;

typedef struct gp_run {
    gp_pool *pool;
    const gp_train_request *request;
    gp_training *training; /* that owns it */
    gp_train_options options;
    gp_augment augment;
    gp_train_begin begin;
    char *netspec, *options_text;
    size_t netspec_bytes, options_bytes;
    uint32_t world, ready, ended;
    bool rank_ended[GP_MEMBERS_MAX];
    bool has_result;
    gp_train_facts facts;
    int stop_told;                         /* highest stop that the workers know of */
    gp_error failure;                      /* first by time; GP_OK = none */
    int64_t failed_ms;                     /* when that, or the first effect of it, was seen */
    gp_error effect;                       /* told when no cause comes */
    int64_t begun_ms;                      /* train_begin was sent */
    char skipped[GP_RUN_SKIPPED_MAX][128]; /* images that some worker could not read, each once */
    uint32_t skipped_count;
    bool loading_told, told_begin;
    /* Deaths: the lease gets another generation, and the training goes on in it. */
    bool broken;                /* a member died, and it will */
    char cause[GP_TEXT_REASON]; /* of the last death */
    int64_t broken_ms;
    uint32_t in_a_row; /* restarts without a step between */
    uint64_t told;     /* the last step of which somebody told, when the last one began */
    /* What another rank told of the steps after the last one that rank 0 told of: where rank 0 dies with news that it has
     * not sent yet, they are the same of any rank. */
    gp_step_list spare;
    gp_step_list early; /* of rank 0, before the last rank's train_ready has come */
} gp_run;

/* ---- train.c ---- */

/* What a worker says. */
void gp_run_take(gp_run *run, uint32_t rank, const gp_incoming *in);
/* train_begin to all ranks of the present grant. */
gp_status gp_run_begin(gp_run *run, gp_error *err);
/* The steps of a list as if rank 0 told of them now; the list is empty then. */
void gp_run_tell_steps(gp_run *run, gp_step_list *list);

/* ---- train_again.c ---- */

void gp_step_list_add(gp_step_list *list, const gp_train_record *record);
void gp_step_list_drop(gp_step_list *list, uint64_t step); /* those up to that step */
/* Whether the training goes on after the death that was just seen. */
bool gp_run_may_go_on(const gp_run *run);
/* Wait for the next generation, attach and begin in it. */
gp_status gp_run_form_again(gp_run *run, gp_error *err);
/* All ranks are ready again, and go on after that step. */
gp_status gp_run_went_on(gp_run *run, uint64_t step, gp_error *err);

/* ---- train_prepare.c ---- */

/* Options, network and data of the request; what can be wrong is told here. */
gp_status gp_run_prepare(gp_run *run, gp_error *err);
/* A part of the data as the training reads it. */
gp_status gp_run_open_data(gp_run *run, gp_store **store, const char *source, gp_data_role role,
                           gp_error *err);
/* What --class-weights says, into each loss of the network that has class weights. */
gp_status gp_run_weigh_classes(gp_run *run, gp_error *err);
/* options_text, with what depends on the number of workers worked out: `world` is known. */
gp_status gp_run_write_options(gp_run *run, gp_error *err);

#endif
