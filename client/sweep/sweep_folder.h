/* Files of a sweep:
 *
 *   gradpool-sweeps/2026-11-22-181500-lenet/
 *     sweep.json      what to search: space, method, command, limits
 *     trials.jsonl    the journal (trial_lines.h)
 *     trials/0007     run folder of trial 7, packed after its end (trial_pack.h)
 *     trials/0007.job number and time of the job of its last attempt
 *     checkpoints/0007
 *     inbox           requests of the user (sweep_inbox.h)
 *     best.onnx       hard link to the model of the best trial
 *     lock            held by the controller; contains the process id and the host
 */
#ifndef GP_SWEEP_FOLDER_H
#define GP_SWEEP_FOLDER_H

#include <gradpool/search.h>

#include "client/sweep/sweep_core.h"

enum { SWEEP_PATH_MAX = 3000, SWEEP_WORDS_MAX = 512, SWEEP_FAILURES_MAX = 5 };

/* Contents of sweep.json. */
typedef struct sweep_plan {
    gp_buffer space; /* as in gp_search_new(), NUL-terminated */
    gp_search_method method;
    uint64_t seed;
    char objective[64]; /* such as "validation-accuracy" */
    bool minimize;
    uint32_t trials, concurrent; /* concurrent 0: as many as the pool has workers for */
    uint32_t workers_min, workers_max;
    uint32_t repeats;                          /* of the best trial, with further seeds */
    uint32_t asha_eta, epochs_min, epochs_max; /* as in gp_search_options */
    double goal;                               /* end when a value reaches it; NaN: none */
    uint32_t failures_max;                     /* end after this many failures in a row; 0: never */
    uint32_t models;                           /* trials whose model is kept, from the best; at least 1 */
    int32_t priority;
    gp_buffer words; /* command of the trials, each word with a NUL */
    char directory[SWEEP_PATH_MAX];
    uint8_t key[16]; /* of the submits */
} sweep_plan;

/* Initialize a plan with the defaults of the limits. */
void sweep_plan_init(sweep_plan *plan);
void sweep_plan_deinit(sweep_plan *plan);

/* Append a word of the command. GP_ELIMIT: too long. */
gp_status sweep_plan_word(sweep_plan *plan, const char *word, gp_error *err);

/* Return the next word of the command. word NULL: the first. NULL: there is none. */
const char *sweep_plan_next(const sweep_plan *plan, const char *word);

/* Return whether the trials are trainings: the command is `train`. Otherwise it is a program. */
bool sweep_plan_trains(const sweep_plan *plan);

/* Return the name of a method: "bayes", "random", "sobol" or "grid". false: no such method. */
const char *sweep_method_word(gp_search_method method);
bool sweep_method_find(const char *word, gp_search_method *out);

typedef struct sweep_folder {
    char path[SWEEP_PATH_MAX]; /* absolute */
    int lock, journal;         /* -1: not open */
} sweep_folder;

/* Create the folder of a sweep and lock it.
 *   path  folder to create, or an empty one, or one that a killed process left without sweep.json;
 *         NULL: gradpool-sweeps/DATE-TIME-NAME
 * GP_EBUSY: the folder has other files, or another process creates it. GP_EIO. */
gp_status sweep_folder_create(sweep_folder *folder, const char *path, const char *name,
                              const sweep_plan *plan, gp_error *err);

/* Open the folder of a sweep and read sweep.json into an initialized plan.
 *   lock  become the controller
 * GP_ENOENT: not a sweep. GP_EBUSY: another controller runs; the message has its process id.
 * GP_ECORRUPT: sweep.json is malformed. */
gp_status sweep_folder_open(sweep_folder *folder, const char *path, bool lock, sweep_plan *plan,
                            gp_error *err);
void sweep_folder_close(sweep_folder *folder);

/* Replace sweep.json, for options that --resume may change. The caller has the lock. */
gp_status sweep_folder_save(const sweep_folder *folder, const sweep_plan *plan, gp_error *err);

/* Return the process id of the controller; 0: none runs on this host. */
int sweep_folder_controller(const char *path);

/* Replay the journal. With the lock, also cut off a torn last line and prepare to append. */
gp_status sweep_folder_replay(sweep_folder *folder, sweep *core, gp_error *err);

/* Append lines to the journal and sync it. After an error, append nothing more. */
gp_status sweep_folder_append(sweep_folder *folder, const gp_buffer *lines, gp_error *err);

/* Set `path` to the run folder of a trial, or with `suffix` to a file in or beside it. */
void sweep_folder_trial(const sweep_folder *folder, uint32_t trial, const char *suffix,
                        char path[SWEEP_PATH_MAX + 100]);

/* Set `path` to the checkpoints of a trial. */
void sweep_folder_checkpoints(const sweep_folder *folder, uint32_t trial, char path[SWEEP_PATH_MAX + 100]);

/* Replace best.onnx by the model of a trial: a hard link, or a copy if the link fails. A missing
 * model is no error. GP_EIO: best.onnx is unchanged. */
gp_status sweep_folder_link_best(const sweep_folder *folder, uint32_t trial, gp_error *err);

#endif
