/* USART1 on PA9 (TX) and PB7 (RX): the ST-LINK's virtual COM port on the 32F746GDISCOVERY (UM1907, section 6.3).
 * RM0385 chapter 31. 8 bits, no parity, one stop bit, oversampling by 16. */
#include "board.h"
#include "drivers.h"
#include "registers.h"

enum { BAUD_MIN = 9600, BAUD_MAX = 3000000, RING_MASK = BOARD_RX_RING - 1, AF7 = 7 };
_Static_assert((BOARD_RX_RING & RING_MASK) == 0, "the ring's size must be a power of two");

void USART1_IRQHandler(void);

/* Written by the interrupt (head, lost), read by the program (tail); both count on and wrap. */
static uint8_t ring[BOARD_RX_RING];
static volatile uint32_t head, tail, lost;

void USART1_IRQHandler(void)
{
    const uint32_t noise = USART_ISR_FE | USART_ISR_NF;
    for (;;) {
        uint32_t status = USART1->ISR;
        if (status & (noise | USART_ISR_ORE)) {
            USART1->ICR = noise | USART_ISR_ORE; /* the same bits clear the flags */
            lost++;
        }
        if (!(status & USART_ISR_RXNE)) {
            return;
        }
        uint8_t byte = (uint8_t)USART1->RDR;
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

static void set_pin(struct gpio_registers *port, uint32_t pin, volatile uint32_t *alternate, uint32_t shift)
{
    *alternate = (*alternate & ~(15u << shift)) | (uint32_t)AF7 << shift;
    port->PUPDR = (port->PUPDR & ~(3u << 2 * pin)) | GPIO_PULL_UP << 2 * pin;
    port->MODER = (port->MODER & ~(3u << 2 * pin)) | GPIO_MODE_ALTERNATE << 2 * pin;
}

int usart_init(uint32_t baud)
{
    RCC->AHB1ENR |= RCC_AHB1ENR_GPIOAEN | RCC_AHB1ENR_GPIOBEN;
    RCC->APB2ENR |= RCC_APB2ENR_USART1EN;
    (void)RCC->APB2ENR; /* the clocks are there after one read */
    set_pin(GPIOA, 9, &GPIOA->AFRH, 4 * (9 - 8));
    set_pin(GPIOB, 7, &GPIOB->AFRL, 4 * 7);
    NVIC_ISER[USART1_IRQ / 32] = BIT(USART1_IRQ % 32);
    return usart_baud(baud);
}

static int wait_for(uint32_t flag)
{
    for (uint32_t tries = 0; tries < WAIT_TRIES; tries++) {
        if (USART1->ISR & flag) {
            return BOARD_OK;
        }
    }
    return BOARD_ERR_TIMEOUT;
}

int usart_flush(void)
{
    return USART1->CR1 & USART_CR1_UE ? wait_for(USART_ISR_TC) : BOARD_OK;
}

int usart_baud(uint32_t baud)
{
    if (baud < BAUD_MIN || baud > BAUD_MAX) {
        return BOARD_ERR_RANGE;
    }
    int status = usart_flush();
    USART1->CR1 = 0;
    USART1->BRR = (clock_apb2_hz() + baud / 2) / baud;
    USART1->CR1 = USART_CR1_TE | USART_CR1_RE | USART_CR1_RXNEIE | USART_CR1_UE;
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
        if (wait_for(USART_ISR_TXE) != BOARD_OK) {
            return BOARD_ERR_TIMEOUT;
        }
        USART1->TDR = data[i];
    }
    return BOARD_OK;
}

uint32_t usart_lost(void)
{
    return lost;
}
