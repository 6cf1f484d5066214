/* Requests of a user to a sweep: files in the inbox, which the controller removes when the line of
 * the request is durable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"

enum { NUMBER_BYTES = 16, PERCENT = 4 };

static void number_of(uint32_t request, char text[NUMBER_BYTES])
{
    snprintf(text, NUMBER_BYTES, "r-%u", request);
}

/* Give half of all sweeps requests, at any time, even while no controller runs. */
void sim_requests_arrive(sim *s)
{
    sim_sweep *c = &s->sweep;
    const uint32_t trials = c->core != NULL ? sweep_count(c->core) : 0;

    if (s->script.seed % 2 != 0 || c->request_count == SIM_SWEEP_REQUESTS || !sim_chance(&c->user, PERCENT))
        return;
    c->requests[c->request_count++] =
        (sim_request){ .there = true,
                       .retry = sim_chance(&c->user, 50) && trials > 0 ? 1 + sim_draw(&c->user, trials) : 0 };
}

/* Take the requests, as sweep_inbox_take() does. */
void sim_requests_take(sim *s)
{
    sim_sweep *c = &s->sweep;
    char number[NUMBER_BYTES];

    for (uint32_t i = 0; i < c->request_count && c->core != NULL && !c->halted && !c->unwritable; i++) {
        sim_request *request = &c->requests[i];

        if (!request->there)
            continue;
        number_of(i, number);
        if (sweep_requested(c->core, number) == 0) {
            sim_sweep_step(s, (sweep_event){
                                  .kind = request->retry > 0 ? SWEEP_EVENT_RETRY : SWEEP_EVENT_ADD,
                                  .trial = request->retry,
                                  .values = "{\"x\": 7}",
                                  .text = number,
                              });
            if (c->core == NULL || c->unwritable)
                return; /* the controller was killed, the sweep is over, or the disk is full */
            if (request->lines == 0) {
                request->there = false; /* refused */
                continue;
            }
        }
        if (!c->unwritable && c->durable == c->bytes) {
            request->there = false;
            request->taken = true;
        }
    }
}

void sim_request_noted(sim *s, const sweep_line *line)
{
    sim_sweep *c = &s->sweep;
    uint32_t request;

    if (line->request == NULL || line->request[0] == '\0')
        return;
    request = (uint32_t)strtoul(line->request + 2, NULL, 10);
    if (request >= c->request_count)
        sim_fail(s, "invented-request", "the journal has the request %s, which no user sent", line->request);
    else if (++c->requests[request].lines > 1)
        sim_fail(s, "requested-twice", "request %u has two trials", request);
}

bool sim_requests_settled(const sim *s, char why[480])
{
    const sim_sweep *c = &s->sweep;

    for (uint32_t i = 0; i < c->request_count; i++) {
        if (!c->requests[i].taken || c->requests[i].lines == 1)
            continue;
        snprintf(why, 480, "request %u was taken, and has %u trials", i, c->requests[i].lines);
        return false;
    }
    return true;
}
