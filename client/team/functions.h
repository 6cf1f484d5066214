/* functions.h -- the task objects that were sent to the workers of a team, and the functions found in them. */
#ifndef GP_TEAM_FUNCTIONS_H
#define GP_TEAM_FUNCTIONS_H

#include "client/team/calls.h"

struct team_object;
struct function_entry;

/* Zero-initialise. */
typedef struct team_functions {
    struct team_object *objects;
    struct function_entry *entries;
    uint32_t object_count; /* also of those that a worker refused: no number is used twice */
    uint32_t count;
} team_functions;

/* The error of a worker that refused the function or its object, if any has. */
gp_status function_check(const gp_function *function, gp_error *err);
void functions_deinit(team_functions *functions);

#endif
