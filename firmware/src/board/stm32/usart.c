/* SPDX-License-Identifier: Apache-2.0 */
/* The serial line, on the USART that hardware.h names: 8 bits, no parity, one stop bit, oversampling by 16. */
#include "board.h"
#include "drivers.h"
#include "hardware.h"

enum { OVERSAMPLING = 16, BAUD_MIN = 9600, BAUD_MAX = 3000000, RING_MASK = BOARD_RX_RING - 1 };
enum { BAUD_LIMIT = PLL_SERIAL_HZ / OVERSAMPLING < BAUD_MAX ? PLL_SERIAL_HZ / OVERSAMPLING : BAUD_MAX };
_Static_assert((BOARD_RX_RING & RING_MASK) == 0, "the ring's size must be a power of two");

void Serial_IRQHandler(void);

/* Written by the interrupt (head, lost), read by the program (tail); both count on and wrap. */
static uint8_t ring[BOARD_RX_RING];
static volatile uint32_t head, tail, lost;

void Serial_IRQHandler(void)
{
    const uint32_t noise = USART_FE | USART_NF;
    for (;;) {
        uint32_t status = serial_status();
        if (status & (noise | USART_ORE)) {
            serial_clear(noise | USART_ORE, status);
            lost++;
        }
        if (!(status & USART_RXNE)) {
            return;
        }
        uint8_t byte = serial_take();
        if (status & noise) {
            continue; /* counted above */
        }
        if (head - tail == BOARD_RX_RING) {
            lost++;
        } else {
            ring[head & RING_MASK] = byte;
            head++;
        }
    }
}

static void set_pin(struct gpio_registers *port, uint32_t pin)
{
    volatile uint32_t *alternate = pin < 8 ? &port->AFRL : &port->AFRH;
    uint32_t shift = 4 * (pin % 8);
    *alternate = (*alternate & ~(15u << shift)) | (uint32_t)SERIAL_AF << shift;
    port->PUPDR = (port->PUPDR & ~(3u << 2 * pin)) | GPIO_PULL_UP << 2 * pin;
    port->MODER = (port->MODER & ~(3u << 2 * pin)) | GPIO_MODE_ALTERNATE << 2 * pin;
}

int usart_init(uint32_t baud)
{
    RCC->AHB1ENR |= SERIAL_GPIO_CLOCKS;
    serial_clock_on();
    set_pin(SERIAL_TX_PORT, SERIAL_TX);
    set_pin(SERIAL_RX_PORT, SERIAL_RX);
    NVIC_ISER[SERIAL_IRQ / 32] = BIT(SERIAL_IRQ % 32);
    return usart_baud(baud);
}

static int wait_for(uint32_t flag)
{
    for (uint32_t tries = 0; tries < WAIT_TRIES; tries++) {
        if (serial_status() & flag) {
            return BOARD_OK;
        }
    }
    return BOARD_ERR_TIMEOUT;
}

int usart_flush(void)
{
    return SERIAL->CR1 & SERIAL_CR1_UE ? wait_for(USART_TC) : BOARD_OK;
}

int usart_baud(uint32_t baud)
{
    if (baud < BAUD_MIN || baud > BAUD_LIMIT) {
        return BOARD_ERR_RANGE;
    }
    int status = usart_flush();
    SERIAL->CR1 = 0;
    SERIAL->BRR = (clock_serial_hz() + baud / 2) / baud;
    SERIAL->CR1 = USART_CR1_TE | USART_CR1_RE | USART_CR1_RXNEIE | SERIAL_CR1_UE;
    return status;
}

size_t usart_read(uint8_t *data, size_t size)
{
    size_t n = 0;
    for (; n < size && tail != head; n++) {
        data[n] = ring[tail & RING_MASK];
        tail++;
    }
    return n;
}

int usart_empty(void)
{
    return tail == head;
}

int usart_write(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (wait_for(USART_TXE) != BOARD_OK) {
            return BOARD_ERR_TIMEOUT;
        }
        serial_put(data[i]);
    }
    return BOARD_OK;
}

uint32_t usart_lost(void)
{
    return lost;
}
