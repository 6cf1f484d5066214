/* lanes_planner.h -- what the parts of planning share: lanes_fuse.c (what is merged and what is dead), lanes_place.c
 * (buffers, views, steps), lanes_plan.c (a step for each op). */
#ifndef GP_LANES_PLANNER_H
#define GP_LANES_PLANNER_H

#include "worker/backend/cpu/lanes/lanes.h"

/* What is known of a value while planning. */
typedef struct lanes_place {
    int32_t channels, height, width; /* whole */
    int32_t live_height, live_width;
    int32_t border[4]; /* top, left, bottom, right: room for a convolution's padding */
    uint32_t root;     /* the value whose buffer it shares (reshape) */
    uint32_t partner;  /* of a gradient: the value it is of; else itself; LANES_NONE: not in this segment */
    uint32_t buffer;   /* of a root; LANES_NONE until written or loaded */
    uint32_t readers;  /* ops that read it, plus one if it crosses */
    bool dense;        /* read as one vector: no border, nothing dead */
} lanes_place;

typedef struct lanes_buffer {
    size_t floats, offset;
    uint32_t first, last; /* steps */
} lanes_buffer;

typedef enum lanes_note {
    LANES_NOTE_PLAIN,
    LANES_NOTE_MERGED,
    LANES_NOTE_RELU,
    LANES_NOTE_POOL,
    LANES_NOTE_UNPOOL,
    LANES_NOTE_WINOGRAD
} lanes_note;

typedef struct lanes_planner {
    lanes_segment *segment;
    const gp_segment_request *request;
    const gp_graph *graph;
    const gp_op *ops;
    uint32_t count;
    bool fuse, winograd;
    lanes_place *places;
    lanes_note *notes; /* per op */
    uint32_t *
        mates; /* per op: LANES_NOTE_RELU, LANES_NOTE_POOL: the conv's relu or pool op; of a backward op, the conv op */
    uint32_t *masks; /* per op: of a fused conv, the buffer of its bits */
    uint32_t *kept;  /* per op: of a Winograd conv, the buffer of its transformed input */
    lanes_buffer *buffers;
    uint32_t buffer_count;
} lanes_planner;

void gp_lanes_place_init(lanes_place *at, const gp_value *value, uint32_t index);

/* Fills places and, when p->fuse, notes and mates. */
void gp_lanes_fuse(lanes_planner *p);

/* Whether a value has a buffer of the plan, because another segment reads or writes it. */
bool gp_lanes_crosses(const lanes_planner *p, uint32_t value);

/* Whether the fast kernels can run a convolution whose input (or the gradient of it) is x. */
bool gp_lanes_conv_is_fast(const lanes_planner *p, const gp_window *window, uint32_t x);
bool gp_lanes_conv_data_reaches(const lanes_planner *p, const gp_op *op);

/* A buffer of the scratch, placed by gp_lanes_place_buffers() over the steps whose views name it. */
gp_status gp_lanes_buffer_add(lanes_planner *p, size_t floats, uint32_t *out, gp_error *err);
void gp_lanes_place_buffers(lanes_planner *p);

/* A value's buffer, and zeros around it if a convolution will read them. */
gp_status gp_lanes_place_make(lanes_planner *p, uint32_t value, uint32_t op, gp_error *err);

/* Make sure that a value is in the scratch: those from outside are brought in where first read. */
gp_status gp_lanes_value_read(lanes_planner *p, uint32_t value, uint32_t op, gp_error *err);

/* Bring a value that crosses out, once it is written. */
gp_status gp_lanes_value_store(lanes_planner *p, uint32_t value, uint32_t op, gp_error *err);

/* A step that reads x and z and writes y, any of which may be GP_NO_VALUE.  *out is valid until the next one. */
gp_status gp_lanes_step_make(lanes_planner *p, lanes_step_kind kind, uint32_t op, uint32_t x, uint32_t z,
                             uint32_t y, lanes_step **out, gp_error *err);

#endif
