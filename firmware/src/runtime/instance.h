/* SPDX-License-Identifier: Apache-2.0 */
/* How a session reaches its model and memory.
 *
 * A firmware holds one model, linked by name: nothing is passed, and the compiler and memory_report follow every call.
 * The library (MICROTRAIN_LIBRARY) holds any number of models and of instances of each; a session knows its own.
 *
 *     INFO(s)->classes
 *     MODEL(s, start)(OF(s));
 *     MODEL(s, imprint_add)(OF_AND(s) label);
 *     FORWARD(s, train);
 */
#ifndef INSTANCE_H
#define INSTANCE_H

#ifdef MICROTRAIN_LIBRARY

#include "model_table.h"

#define INFO(s) (&(s)->model->info)
#define ROWS(s) ((uint32_t)(s)->model->info.height)
#define CHANNELS(s) ((uint32_t)(s)->model->info.channels)
#define ROW_BYTES(s) ((uint32_t)(s)->model->info.width * (s)->model->info.channels)
#define HOP(s) ((s)->model->hop)
#define PIXEL_TABLE(s) ((s)->model->input_table)
#define PIXEL_TABLES(s) ((s)->model->input_tables)
#define HEARD(s) ((s)->model->heard_on)
#define ALL_HEARD(s) ((s)->model->sound_samples)
#define ARENA(s) ((s)->memory.arena)
#define TRAINABLES(s) ((s)->memory.trainables)
#define TRAINABLES_INIT(s) ((s)->model->init)
#define MODEL(s, function) (s)->model->function
#define OF(s) &(s)->memory
#define OF_AND(s) &(s)->memory,
#define FORWARD(s, train) model_forward((s)->model, &(s)->memory, train)
#define FRONT(s) model_front((s)->model, &(s)->memory)
#define REST(s, train) model_rest((s)->model, &(s)->memory, train)
#define KEEPS(s) ((s)->replay.records != 0)
#define BACKWARD(s, label, sgd) model_backward((s)->model, &(s)->memory, label, sgd)
#define ALIVE()
#define CYCLES() 0u
#define MODEL_RECORDS 1     /* a buffer is the caller's */
#define MODEL_TARGETS 0     /* the library's functions take them */
#define MODEL_FLEET_BYTES 0 /* they are the caller's */

#else

#include "board.h"
#include "microtrain_board.h"
#include "model_api.h"

#ifndef MODEL_GUESSES
#define MODEL_GUESSES model_info.classes /* it learns from labels */
#endif

#define INFO(s) ((void)(s), &model_info)
#define ROWS(s) ((void)(s), (uint32_t)MODEL_HEIGHT)
#define CHANNELS(s) ((void)(s), (uint32_t)MODEL_CHANNELS)
#define ROW_BYTES(s) ((void)(s), (uint32_t)(MODEL_WIDTH * MODEL_CHANNELS))
#define HOP(s) ((void)(s), (uint32_t)MODEL_HOP)
#ifdef MODEL_PIXEL_TABLES
#define PIXEL_TABLE(s) ((void)(s), input_table)
#define PIXEL_TABLES(s) ((void)(s), (uint32_t)MODEL_PIXEL_TABLES)
#endif
#define HEARD(s) ((void)(s), (uint32_t)MODEL_HEARD)
#define ALL_HEARD(s) ((void)(s), (uint32_t)MODEL_ALL_HEARD)
#define ARENA(s) ((void)(s), model_arena)
#define TRAINABLES(s) ((void)(s), model_trainables)
#define TRAINABLES_INIT(s) ((void)(s), model_trainables_init)
#define MODEL(s, function) ((void)(s), model_##function)
#define OF(s)
#define OF_AND(s)
#define FORWARD(s, train) ((void)(s), model_forward(train))
#define FRONT(s) ((void)(s), model_front())
#define REST(s, train) ((void)(s), model_rest(train))
#define KEEPS(s) ((s)->keeping)
#define BACKWARD(s, label, sgd) ((void)(s), model_backward(label, sgd))
#define ALIVE() board_alive()
#define CYCLES() board_cycles()

#endif
#endif
